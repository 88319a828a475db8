package rpc

import "fmt"

// Method numbers what a request asks for. Numbers are sent and append-only.
type Method uint16

// Hot methods: bodies laid out by hand (see the Encode and Decode functions).
const (
	MethodPing     Method = 1 // empty body both ways; answered by the server itself
	MethodGet      Method = 2 // GetRequest -> Item, or the error NotFound
	MethodMultiGet Method = 3 // MultiGetRequest -> []GetResult
	MethodMutate   Method = 4 // []Op -> []OpResult, one per op in request order
	MethodScan     Method = 5 // ScanRequest -> ScanReply
)

// Control methods, open to clients: bodies are messages of rpcpb.
const (
	MethodMap          Method = 16 // MapRequest -> MapReply
	MethodPoolCreate   Method = 17 // PoolCreateRequest -> PoolCreateReply
	MethodPoolSet      Method = 18 // PoolSetRequest -> PoolSetReply
	MethodPoolDelete   Method = 19 // PoolDeleteRequest -> PoolDeleteReply
	MethodPoolDescribe Method = 20 // PoolDescribeRequest -> PoolDescribeReply
	MethodNodes        Method = 21 // NodesRequest -> NodesReply
	MethodPartitions   Method = 22 // PartitionsRequest -> PartitionsReply
	MethodCheck        Method = 23 // CheckRequest -> CheckReply
)

// Node methods: answered only on connections that proved to be a node's
// ([NodeOnly]). Bodies are messages of rpcpb.
const (
	MethodFound        Method = 64 // FoundRequest -> FoundReply
	MethodJoin         Method = 65 // JoinRequest -> JoinReply
	MethodMapPush      Method = 66 // MapPushRequest -> MapPushReply
	MethodStatus       Method = 67 // StatusRequest -> StatusReply
	MethodReplicaCheck Method = 68 // ReplicaCheckRequest -> ReplicaCheckReply
)

// firstNodeMethod is where the numbers of the node methods begin.
const firstNodeMethod Method = 64

// NodeOnly reports whether m is answered only to peers that proved to be a
// node. All numbers from 64 up are, so an unknown one is never open by mistake.
func NodeOnly(m Method) bool { return m >= firstNodeMethod }

// String returns the method's name, or "method N".
func (m Method) String() string {
	switch m {
	case MethodPing:
		return "ping"
	case MethodGet:
		return "get"
	case MethodMultiGet:
		return "multiget"
	case MethodMutate:
		return "mutate"
	case MethodScan:
		return "scan"
	case MethodMap:
		return "map"
	case MethodPoolCreate:
		return "pool-create"
	case MethodPoolSet:
		return "pool-set"
	case MethodPoolDelete:
		return "pool-delete"
	case MethodPoolDescribe:
		return "pool-describe"
	case MethodNodes:
		return "nodes"
	case MethodPartitions:
		return "partitions"
	case MethodCheck:
		return "check"
	case MethodFound:
		return "found"
	case MethodJoin:
		return "join"
	case MethodMapPush:
		return "map-push"
	case MethodStatus:
		return "status"
	case MethodReplicaCheck:
		return "replica-check"
	}
	return fmt.Sprintf("method %d", uint16(m))
}

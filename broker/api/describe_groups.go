package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
)

// describeGroups answers DescribeGroups (key 15), versions 0-6. v3 authorized operations; v4 instance ids; v6 a group
// that does not exist is GROUP_ID_NOT_FOUND with a message (KIP-1043), before it is Dead. Errors per group: 14, 16, 69.
type describeGroups struct{ groups *groupcoord.Service }

func (h describeGroups) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeGroupsRequest)
	h.groups.DescribeGroups(msg.Groups, msg.Version, func(groups []kmsg.DescribeGroupsResponseGroup) {
		resp := kmsg.NewPtrDescribeGroupsResponse()
		resp.Version, resp.Groups = msg.Version, groups
		for i := range groups {
			groups[i].AuthorizedOperations = auth.OperationsNotAsked
			if msg.Version >= 3 && msg.IncludeAuthorizedOperations && groups[i].ErrorCode == 0 {
				groups[i].AuthorizedOperations = auth.GroupOperations()
			}
		}
		w.Reply(resp)
	})
}

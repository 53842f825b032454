package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// failed answers everything that a forwarded request asks for with one error, as Kafka's getErrorResponse of the request
// does; nil for a request that is not forwarded.
func failed(req kmsg.Request, err error) kmsg.Response {
	code, text := refusal(err)
	switch msg := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp := msg.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range msg.Topics {
			rt := notCreated(t.Topic, code, "")
			rt.ErrorMessage = text
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *kmsg.DeleteTopicsRequest:
		resp := msg.ResponseKind().(*kmsg.DeleteTopicsResponse)
		for i := range msg.TopicNames {
			resp.Topics = append(resp.Topics, deleted(&msg.TopicNames[i], [16]byte{}, code, text))
		}
		for _, t := range msg.Topics {
			resp.Topics = append(resp.Topics, deleted(t.Topic, t.TopicID, code, text))
		}
		return resp
	case *kmsg.CreatePartitionsRequest:
		resp := msg.ResponseKind().(*kmsg.CreatePartitionsResponse)
		for _, t := range msg.Topics {
			rt := kmsg.NewCreatePartitionsResponseTopic()
			rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, code, text
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	case *kmsg.ElectLeadersRequest:
		return electionFailed(msg, err)
	case *kmsg.DescribeQuorumRequest:
		resp := msg.ResponseKind().(*kmsg.DescribeQuorumResponse)
		resp.ErrorCode, resp.ErrorMessage = code, text
		return resp
	case *kmsg.UpdateFeaturesRequest:
		resp := msg.ResponseKind().(*kmsg.UpdateFeaturesResponse)
		resp.ErrorCode, resp.ErrorMessage = code, text
		return resp
	case *kmsg.UnregisterBrokerRequest:
		resp := msg.ResponseKind().(*kmsg.UnregisterBrokerResponse)
		resp.ErrorCode, resp.ErrorMessage = code, text
		return resp
	}
	return nil
}

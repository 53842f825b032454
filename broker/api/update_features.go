package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// updateFeatures answers UpdateFeatures (key 57), versions 0-2: finalised feature levels (KIP-584, KIP-778), all of them
// or none. v1 the kind of the update, and validate-only; v2 no results per feature (KIP-1022). Errors: 7, 31, 41, 95.
type updateFeatures struct{ updater quorumAdmin }

func (h updateFeatures) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.UpdateFeaturesRequest)
	resp := msg.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	updates := make([]raftctl.FeatureUpdate, 0, len(msg.FeatureUpdates))
	for _, u := range msg.FeatureUpdates {
		kind := raftctl.UpgradeType(u.UpgradeType)
		if req.Version == 0 {
			if kind = raftctl.Upgrade; u.AllowDowngrade {
				kind = raftctl.SafeDowngrade
			}
		}
		updates = append(updates, raftctl.FeatureUpdate{Name: u.Feature, Level: u.MaxVersionLevel, Type: kind})
	}
	ctx, cancel := withTimeout(ctx, msg.TimeoutMillis)
	defer cancel()
	if err := h.updater.UpdateFeatures(ctx, updates, req.Version >= 1 && msg.ValidateOnly); err != nil {
		resp.ErrorCode, resp.ErrorMessage = refusal(err)
		w.Reply(resp)
		return
	}
	if req.Version < 2 {
		none := textNone
		for _, u := range updates {
			r := kmsg.NewUpdateFeaturesResponseResult()
			r.Feature, r.ErrorMessage = u.Name, &none
			resp.Results = append(resp.Results, r)
		}
	}
	w.Reply(resp)
}

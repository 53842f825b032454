package txn

import "sync"

// awaits are those who wait for the transaction of an id to be complete.
type awaits struct {
	mu   sync.Mutex
	byID map[string]map[chan struct{}]struct{}
}

// Completed gives a channel that is closed when the next transaction of the id has been completed by a coordinator here:
// whoever was answered CONCURRENT_TRANSACTIONS after the call may ask again then. forget has to be called once.
func (s *Service) Completed(id string) (done <-chan struct{}, forget func()) {
	a := &s.awaits
	ch := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID == nil {
		a.byID = make(map[string]map[chan struct{}]struct{})
	}
	if a.byID[id] == nil {
		a.byID[id] = make(map[chan struct{}]struct{})
	}
	a.byID[id][ch] = struct{}{}
	return ch, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(a.byID[id], ch); len(a.byID[id]) == 0 {
			delete(a.byID, id)
		}
	}
}

// completed tells those who wait for id.
func (a *awaits) completed(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ch := range a.byID[id] {
		close(ch)
	}
	delete(a.byID, id)
}

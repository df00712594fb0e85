package pushauth

import "context"

// Ready says whether callers could be checked now. Only a check of signatures depends on anybody: Google's keys must be at
// hand, or to be had. The error is ErrKeysUnavailable.
func (a *Authenticator) Ready(ctx context.Context) error {
	if a.keys == nil || a.keys.usable() {
		return nil
	}
	_, err := a.keys.get(ctx, "")
	return err
}

// usable reports whether there is a key set that has not expired.
func (s *keySource) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set != nil && s.now().Before(s.set.expires)
}

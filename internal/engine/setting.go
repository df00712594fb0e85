package engine

import "fmt"

// SettingError is what an adapter finds wrong with one setting of its engine.
type SettingError struct {
	Setting string // as the configuration has it below the engine, such as statuses.4xx
	Message string // holds no secret
}

// Misset returns a *SettingError.
func Misset(setting, format string, args ...any) error {
	return &SettingError{Setting: setting, Message: fmt.Sprintf(format, args...)}
}

// Error returns "setting: message".
func (e *SettingError) Error() string { return e.Setting + ": " + e.Message }

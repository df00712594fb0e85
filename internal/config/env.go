package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Lookup reads an environment variable; os.LookupEnv is one.
type Lookup = func(name string) (string, bool)

// AuthMode says who checks the identity of a caller.
type AuthMode string

// The modes.
const (
	AuthModeEdge   AuthMode = "edge"   // Cloud Run's IAM has checked the token; audience and e-mail are matched here
	AuthModeVerify AuthMode = "verify" // everything is checked here
	AuthModeNone   AuthMode = "none"   // nothing is checked: only away from Cloud Run
)

// The environment variables of both functions. K_SERVICE and K_REVISION are set by Cloud Run.
const (
	EnvDatabase             = "SPANNER_DATABASE"
	EnvPayloadBucket        = "PAYLOAD_BUCKET"
	EnvAuthMode             = "AUTH_MODE"
	EnvPushAudience         = "PUSH_AUDIENCE"
	EnvPushServiceAccounts  = "PUSH_SERVICE_ACCOUNTS"
	EnvRelayAudience        = "RELAY_AUDIENCE"
	EnvRelayServiceAccounts = "RELAY_SERVICE_ACCOUNTS"
	EnvService              = "K_SERVICE"
	EnvRevision             = "K_REVISION"
	EnvProject              = "GOOGLE_CLOUD_PROJECT"
)

// ReceiveEnv is the environment of the receive function.
type ReceiveEnv struct {
	Database        string   // SPANNER_DATABASE: projects/P/instances/I/databases/D
	PayloadBucket   string   // PAYLOAD_BUCKET: for payloads that do not fit a row; empty: those are refused
	AuthMode        AuthMode // AUTH_MODE: no default, because each is wrong somewhere
	Audience        string   // PUSH_AUDIENCE: of the push subscription's token
	ServiceAccounts []string // PUSH_SERVICE_ACCOUNTS: e-mails that may push, comma separated
	OnCloudRun      bool     // K_SERVICE is set
	Revision        string   // K_REVISION
	ProjectID       string   // GOOGLE_CLOUD_PROJECT: for trace names in logs; default: the database's project
}

// RelayEnv is the environment of the relay function.
type RelayEnv struct {
	Database        string   // SPANNER_DATABASE: projects/P/instances/I/databases/D
	PayloadBucket   string   // PAYLOAD_BUCKET: where large payloads are; empty: there are none
	AuthMode        AuthMode // AUTH_MODE: no default, because each is wrong somewhere
	Audience        string   // RELAY_AUDIENCE: of the scheduler's token
	ServiceAccounts []string // RELAY_SERVICE_ACCOUNTS: e-mails that may start a run, comma separated
	OnCloudRun      bool     // K_SERVICE is set
	Revision        string   // K_REVISION
	ProjectID       string   // GOOGLE_CLOUD_PROJECT: for trace names in logs; default: the database's project
}

// LoadReceiveEnv reads and validates the environment of the receive function.
func LoadReceiveEnv(lookup Lookup) (*ReceiveEnv, error) {
	e := ReceiveEnv(readEnv(lookup, EnvPushAudience, EnvPushServiceAccounts))
	return &e, e.Validate()
}

// LoadRelayEnv reads and validates the environment of the relay function.
func LoadRelayEnv(lookup Lookup) (*RelayEnv, error) {
	e := readEnv(lookup, EnvRelayAudience, EnvRelayServiceAccounts)
	return &e, e.Validate()
}

// Validate joins every fault.
func (e *ReceiveEnv) Validate() error {
	return validateEnv(RelayEnv(*e), EnvPushAudience, EnvPushServiceAccounts)
}

// Validate joins every fault.
func (e *RelayEnv) Validate() error {
	return validateEnv(*e, EnvRelayAudience, EnvRelayServiceAccounts)
}

func readEnv(lookup Lookup, audience, accounts string) RelayEnv {
	get := func(name string) string {
		value, _ := lookup(name)
		return strings.TrimSpace(value)
	}
	e := RelayEnv{
		Database:      get(EnvDatabase),
		PayloadBucket: get(EnvPayloadBucket),
		AuthMode:      AuthMode(get(EnvAuthMode)),
		Audience:      get(audience),
		OnCloudRun:    get(EnvService) != "",
		Revision:      get(EnvRevision),
		ProjectID:     get(EnvProject),
	}
	for _, account := range strings.Split(get(accounts), ",") {
		if account = strings.TrimSpace(account); account != "" {
			e.ServiceAccounts = append(e.ServiceAccounts, account)
		}
	}
	if m := databasePattern.FindStringSubmatch(e.Database); m != nil && e.ProjectID == "" {
		e.ProjectID = m[1]
	}
	return e
}

var (
	databasePattern = regexp.MustCompile(`^projects/([^/\s]+)/instances/([^/\s]+)/databases/([^/\s]+)$`)
	emailPattern    = regexp.MustCompile(`^[^@\s:]+@[^@\s:]+\.[^@\s:]+$`)
)

func validateEnv(e RelayEnv, audience, accounts string) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if e.Database == "" {
		fault("%s is not set; it must be projects/P/instances/I/databases/D", EnvDatabase)
	} else if !databasePattern.MatchString(e.Database) {
		fault("%s is %q; it must be projects/P/instances/I/databases/D", EnvDatabase, e.Database)
	}
	if strings.ContainsAny(e.PayloadBucket, "/: ") {
		fault("%s is %q; it must be a bare bucket name, without gs:// and folders", EnvPayloadBucket, e.PayloadBucket)
	}
	switch e.AuthMode {
	case "":
		fault("%s is not set; choose edge on Cloud Run behind its IAM check, verify where nothing checks the token before "+
			"(it works everywhere), or none on your own machine", EnvAuthMode)
	case AuthModeEdge:
		if !e.OnCloudRun {
			fault("%s is edge, and this is not Cloud Run (%s is not set): nothing has checked the tokens here; use verify, or "+
				"none on your own machine", EnvAuthMode, EnvService)
		}
	case AuthModeNone:
		if e.OnCloudRun {
			fault("%s is none, and this is Cloud Run (%s is set): anybody could call; use edge or verify", EnvAuthMode, EnvService)
		}
	case AuthModeVerify:
	default:
		fault("%s is %q; it must be edge, verify or none", EnvAuthMode, e.AuthMode)
	}
	if e.AuthMode != AuthModeNone {
		if e.Audience == "" {
			fault("%s is not set; it must be the audience that the caller's token is made for", audience)
		}
		if len(e.ServiceAccounts) == 0 {
			fault("%s is not set; it must name the service accounts that may call: an audience alone proves nothing, anybody "+
				"can get a token for it", accounts)
		}
	}
	for _, account := range e.ServiceAccounts {
		if !emailPattern.MatchString(account) {
			fault("%s holds %q; it must hold bare e-mail addresses, without serviceAccount:", accounts, account)
		}
	}
	return errors.Join(faults...)
}

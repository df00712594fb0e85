// Package config turns the configuration file and the environment into typed, validated values.
//
// Promise. Parse reports every fault of a file at once, each with its place and what to do about it; what it returns can
// be used as it is: its expressions and schemas are compiled, its references exist, its limits hold. Load reads the file
// that the environment names. LoadReceiveEnv and LoadRelayEnv read the rest, one struct for each function, and report
// every fault at once, too. Compare names what a change does to messages in flight; it goes by the types of Config, so that
// no setting is forgotten. Config.Fault places what others find wrong with a setting. The environment is read through a
// lookup function only.
//
// Reading. The file is one YAML document of maps, lists and scalars, in UTF-8, with or without a byte order mark; unknown
// keys, duplicate keys, anchors, aliases and tags are faults. So is a comment in an expression that YAML has made one line
// of, if it swallows more than its own. Durations are Go's, with days before them: 75d, 1d12h, 24h, 500ms. An expression is
// the text of its scalar, whatever YAML takes it for. message is a literal name, and an expression exactly if it contains
// attributes., payload., message. or claim. (or those with an index); a literal name that looks like that is written as a
// CEL string: '"message.created"'. Versions are texts: 1.10 is not 1.1. variables: {} sends no variables; without variables
// the payload goes as it came.
//
// No promise. Whether an engine, a database or an account exists is not looked up, and neither is whether a secret's
// environment variable is set. A Config that was built by hand is not validated.
//
// Concurrency. Everything is read-only once returned.
package config

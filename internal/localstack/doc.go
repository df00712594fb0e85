// Package localstack runs the whole inbox on one machine: the Spanner and the Pub/Sub emulator, a Cloud Storage server,
// and both functions, put together as in production (functions/receive, functions/relay) and served in this process.
//
// It promises: a stack that Start returns has answered at every address it names, its database has all migrations, and
// Pub/Sub pushes to its receive function. A configuration or environment that the functions would refuse is refused
// before anything is started, with the functions' own sentences. Stop ends everything that Start has started; on Linux the
// emulators end with the process, however it ends (package emulators). An emulator that is running already, as
// SPANNER_EMULATOR_HOST, PUBSUB_EMULATOR_HOST or STORAGE_EMULATOR_HOST say, is used and left running; the names in the
// stack are then unique, so that several stacks can share it, and Stop removes them again, but for the bucket.
//
// It does not promise what only Google Cloud has: nobody's identity is checked (AUTH_MODE=none), the pushes have no token,
// no ordering key and no delivery attempt. The push subscription is not ordered: with ordering and a dead-letter policy
// the emulator stops delivering after the fifth refusal, and the inbox orders by itself. Nothing is kept after Stop. The
// functions' Spanner clients are not closed by Stop: their emulator is, and the process is expected to end soon.
//
// The clients of Google Cloud find an emulator through the process's environment and nothing else, so Start sets it by
// Options.Setenv, and Stop takes back what named an emulator of the stack's own. One process can therefore hold several
// stacks at once only if they share one Spanner emulator.
//
// All methods may be called from several goroutines at once.
package localstack

// Package emulators starts and ends the servers that stand in for Google Cloud on one machine: the
// Spanner and the Pub/Sub emulator of the Google Cloud SDK as child processes, and a Cloud Storage
// server inside this process.
//
// It promises that a server it returns has answered a call, that its port was taken by nobody else,
// and that it ends with this process, however this process ends: on Linux also after a panic or a
// SIGKILL. A server named by SPANNER_EMULATOR_HOST, PUBSUB_EMULATOR_HOST or STORAGE_EMULATOR_HOST is
// used as it is and never ended.
//
// It does not promise that the servers behave like the real services (the emulators have no quotas,
// deadlines, row deletion or permissions), and it sets no environment variable. On systems other than
// Linux a child outlives a parent that is killed, because only Linux can tie the two together.
//
// All functions may be called by several goroutines at once. Stop may be called more than once.
package emulators

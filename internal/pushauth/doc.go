// Package pushauth decides whether a request comes from the caller it should come from: the push subscription's service
// account, or the scheduler's.
//
// # Three modes
//
// verify checks everything here: an RS256 signature by one of Google's keys, issuer, audience, times, and an e-mail
// address from a list, verified by Google. A valid token for our audience alone proves nothing, since whoever mints a
// token chooses its audience; the address is what tells callers apart.
//
// edge relies on Cloud Run: its IAM check has verified the token and replaced its signature by the word
// SIGNATURE_REMOVED_BY_GOOGLE, so there is none left to verify. The claims are checked all the same. Without IAM in
// front this mode accepts what anybody writes; New therefore refuses it where Config.OnCloudRun is false. That the
// service really has its invoker check switched on is not to be seen from inside.
//
// none lets everything pass, and New refuses it on Cloud Run.
//
// # Which header
//
// verify reads Authorization. edge reads X-Serverless-Authorization if it is there, because that is the one Cloud Run
// has verified then; Authorization may hold anything. A header that is there twice is refused.
//
// # Answers
//
// Check answers nil, a *Refused (401: not known who this is; 403: known, but not one of those allowed), or an error that
// is ErrKeysUnavailable (503: Google's keys could not be had, so nothing can be said). Status maps all three. A refusal
// carries one of the Reason codes and nothing that was in the request.
//
// # Keys
//
// The keys are kept as long as their Cache-Control allows, at least a minute and at most a day. Requests that need them
// at the same time share one fetch. A failed fetch is the answer for the next two seconds. A token under a key id that
// is not in the set leads to another fetch at most once a minute, so that a caller who invents key ids costs nothing,
// and a key that Google brings in early is still found. A token that is refused for its form or its claims costs no
// fetch. Expired keys are not used.
//
// # Not promised
//
// No replay protection: a token may be used as often as it likes until it expires. ES256 is not accepted in verify; the
// tokens of Pub/Sub and Cloud Scheduler are RS256, and Google's ES256 keys belong to another issuer. In verify a token
// is refused from the second after its expiry by the wall clock of google.golang.org/api/idtoken, which has no leeway.
//
// # Concurrency
//
// An Authenticator may be used from many goroutines. A fetch of the keys runs in a goroutine of its own, for at most five
// seconds, and outlives a request that stops waiting for it.
//
// Sources: https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions (claims),
// https://cloud.google.com/run/docs/troubleshooting#signature-removed,
// https://cloud.google.com/run/docs/authenticating/service-to-service (X-Serverless-Authorization),
// https://developers.google.com/identity/openid-connect/openid-connect#validatinganidtoken,
// RFC 9110 11.1 and RFC 6750 2.1 (header), RFC 7515 and RFC 7519 (token).
package pushauth

// Package lockerotel measures and traces the locks of a [locker.Client] with
// OpenTelemetry. Begin with [Observer]; docs/observability.md has alerts and a dashboard.
//
//	import lockerotel "github.com/lockerproject/locker/observe/otel"
//
//	l, err := locker.Open(ctx, url, lockerotel.Observer())
//
// It uses the global providers (otel.SetMeterProvider, otel.SetTracerProvider),
// unless options set others.
//
// # Metrics
//
// Names and units follow the semantic conventions of OpenTelemetry; the exporter
// for Prometheus makes locker_acquire_duration_seconds of the first. Every metric has
// the attribute locker.store, and all but the last locker.lock.mode (exclusive or shared).
//
//   - locker.acquire.duration: how long acquisitions took, granted or not, with
//     locker.contended (it had to wait in the queue, or was refused) and error.type
//   - locker.waiter.count: acquisitions that wait now
//   - locker.rejoins: waiters that lost their ticket in an outage and queued again
//   - locker.degraded_grants: grants by a substitute for the store (compose.Fallback)
//   - locker.hold.duration: how long locks were held, with error.type when a lock was
//     lost or the store has not confirmed its release
//   - locker.holder.count: locks that are held now
//   - locker.renew.duration: how long renewals took, with error.type
//   - locker.losses: locks that were lost, with error.type expired (not renewed in time)
//     or removed (it is no longer in the store)
//   - locker.queue.length: see [ObserveQueues]
//
// A re-entry counts as an acquisition only if it had to wait. Calls that fail before a
// request is sent, as for an invalid name, do not count.
//
// error.type is one of unavailable, not_acquired, timeout, canceled, closed, upgrade,
// unsupported, invalid, expired, removed, and _OTHER for the store's own errors.
//
// # Spans
//
// locker.acquire is the acquisition and locker.hold the time that the lock is held. Both
// have the span of Acquire's caller as their parent. The second is linked to the first,
// and to the span of Release's caller if that is another one. Steps in between are
// events: queued, rejoined, renewal failed. The status of a hold that was lost is an
// error; an acquisition that is refused, or given up by its caller, has an error.type and
// no such status. A span is exported when it ends: if a lock is held for days, days
// later.
//
// # Cardinality
//
// By default neither metrics nor spans contain the names of locks. On spans names cost
// little ([WithLockNamesOnSpans]); on metrics each name makes series of its own
// ([WithLockNames]). [WithLockClass] puts a class of names on both.
package lockerotel

// Package etcdfence fences data in etcd: it refuses a holder that has lost its
// lock, as package [github.com/lockerproject/locker/fence] explains.
//
//	err := etcdfence.Update(ctx, client, lock, "stock/42", func(items string, ok bool) (string, error) {
//		n, err := strconv.Atoi(items)
//		…
//		return strconv.Itoa(n - 1), err
//	})
//
// [Do] is for other operations than get and put.
//
// # What it promises
//
// One transaction compares the token of the lock with the fence, the greatest token
// seen, raises the fence, and does the operations. So the transactions of one name are
// done in the order of their tokens. A token that is smaller than an earlier one is
// refused with fence.ErrStale. The lock may be on any store.
//
// If the lock is in the same etcd, and was acquired with a *etcd.Driver that the
// program has, [DoWhileHeld] is stricter: it refuses a caller that does not hold
// the lock at that moment, and leaves no key.
//
// # What it does not promise
//
// The greatest token of a name is in the key locker-fence/name, for ever: it may be
// deleted when no earlier holder can be alive.
package etcdfence

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/fence"
)

// Do compares the token of lock with the fence of its name, raises the fence, and
// does ops, reads or writes, all in one transaction. The Responses that it returns are
// those of ops. An error that wraps fence.ErrStale means that the lock was lost
// and that nothing was done; after any other error ops may have been done.
func Do(ctx context.Context, kv clientv3.KV, lock fence.Lock, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	members, err := check(kv, lock)
	if err != nil {
		return nil, err
	}
	puts := make([]clientv3.Op, 0, len(members)+len(ops))
	for _, k := range members {
		puts = append(puts, clientv3.OpPut(fenceKey(k), digits(k)))
	}
	accepted := append(puts, ops...)
	for i := len(members) - 1; i > 0; i-- { // a condition has no "or"
		stale, seen := greater(members[i])
		accepted = []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{stale}, []clientv3.Op{seen}, accepted)}
	}
	stale, seen := greater(members[0])
	resp, err := kv.Txn(ctx).If(stale).Then(seen).Else(accepted...).Commit()
	if err != nil {
		return nil, fmt.Errorf("etcdfence: guard by %q: %w", lock.Name(), err)
	}
	for i, k := range members {
		if resp.Succeeded {
			return nil, refused(k, resp)
		}
		if i < len(members)-1 {
			resp = (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
		}
	}
	resp.Succeeded, resp.Responses = true, resp.Responses[len(members):]
	return resp, nil
}

// greater returns the condition that the fence of a name is above its lock's token,
// and the operation that reads the fence. A missing fence is not above it.
func greater(k fence.Lock) (stale clientv3.Cmp, seen clientv3.Op) {
	return clientv3.Compare(clientv3.Value(fenceKey(k)), ">", digits(k)), clientv3.OpGet(fenceKey(k))
}

func refused(k fence.Lock, resp *clientv3.TxnResponse) error {
	kvs := resp.Responses[0].GetResponseRange().Kvs
	seen, err := strconv.ParseUint(string(kvs[0].Value), 10, 64)
	if err != nil {
		return fmt.Errorf("etcdfence: the fence of %q: %w", k.Name(), err)
	}
	return &fence.StaleError{Name: k.Name(), Token: k.Token(), Seen: seen}
}

// Update reads the value of a key, passes it to fn, and puts the result of fn. Both
// the read and the write are guarded, so that nobody else changes the value in
// between; fn may take its time. If ok is false there was no value. The key keeps
// its lease.
//
// An error that wraps fence.ErrStale means that the lock was lost and that nothing was
// written. An error of fn is returned as it is, and nothing is written.
// Any other error is the client's; if the write has no answer, it may have been
// done.
func Update(ctx context.Context, kv clientv3.KV, lock fence.Lock, key string, fn func(value string, ok bool) (string, error)) error {
	if fn == nil {
		return fmt.Errorf("etcdfence: %w: no function", locker.ErrInvalidOption)
	}
	resp, err := Do(ctx, kv, lock, clientv3.OpGet(key))
	if err != nil {
		return err
	}
	value, ok, lease := "", false, clientv3.NoLease
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs { // one at most
		value, ok, lease = string(kv.Value), true, clientv3.LeaseID(kv.Lease)
	}
	next, err := fn(value, ok)
	if err != nil {
		return err
	}
	_, err = Do(ctx, kv, lock, clientv3.OpPut(key, next, clientv3.WithLease(lease)))
	return err
}

// DoWhileHeld does ops in one transaction if lock, which was acquired with d, is
// still held in this etcd at that moment. Then nobody has changed what the holder
// has read since it acquired the lock, so only its writes need the guard. An
// error that wraps fence.ErrStale means that the lock is not held any more and
// that nothing was done; after any other error ops may have been done.
func DoWhileHeld(ctx context.Context, kv clientv3.KV, d *etcd.Driver, lock fence.Lock, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	members, err := check(kv, lock)
	if err == nil && d == nil {
		err = fmt.Errorf("etcdfence: %w: no driver", locker.ErrInvalidOption)
	}
	if err != nil {
		return nil, err
	}
	held := make([]clientv3.Cmp, len(members))
	for i, k := range members {
		held[i] = d.Guard(k)
	}
	resp, err := kv.Txn(ctx).If(held...).Then(ops...).Commit()
	if err != nil {
		return nil, fmt.Errorf("etcdfence: guard by %q: %w", lock.Name(), err)
	}
	if !resp.Succeeded {
		return nil, fmt.Errorf("etcdfence: guard by %q: %w: %w", lock.Name(), fence.ErrStale, locker.ErrLost)
	}
	return resp, nil
}

func check(kv clientv3.KV, lock fence.Lock) ([]fence.Lock, error) {
	if kv == nil {
		return nil, fmt.Errorf("etcdfence: %w: no client", locker.ErrInvalidOption)
	}
	return fence.Members(lock)
}

func fenceKey(k fence.Lock) string { return "locker-fence/" + k.Name() }

// digits is the token in the form in which etcd compares values, byte by byte.
func digits(k fence.Lock) string { return fmt.Sprintf("%020d", k.Token()) }

module github.com/lockerproject/locker/internal/browsertest

go 1.25.0

replace github.com/lockerproject/locker => ../..

require (
	github.com/chromedp/chromedp v0.23.0
	github.com/lockerproject/locker v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/chromedp/cdproto v0.159.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/redis/go-redis/v9 v9.17.3 // indirect
	golang.org/x/sync v0.17.0 // indirect
)

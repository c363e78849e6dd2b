module redis-lock/clients/go/integration

go 1.25

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	go.uber.org/goleak v1.3.0
	redis-lock/clients/go v0.0.0
)

require github.com/yuin/gopher-lua v1.1.1 // indirect

replace redis-lock/clients/go => ../

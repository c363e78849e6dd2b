module redis-lock/clients/go

go 1.25

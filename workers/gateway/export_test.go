package gateway

// NewForTest is New with an end of the process that a test can see.
func NewForTest(adapters Adapters, exit func(code int)) *Gateway {
	return &Gateway{adapters: adapters, exit: exit}
}

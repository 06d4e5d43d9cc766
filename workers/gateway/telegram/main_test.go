package telegram

import (
	"testing"

	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway"
	"github.com/hermes-supervisor/hermes-supervisor/workers/gateway/gatewaytest"
)

func TestMain(m *testing.M) { gatewaytest.Main(m, gateway.Adapters{Platform: Open}) }

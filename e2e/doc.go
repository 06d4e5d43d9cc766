// Package e2e tests the whole: the real binaries, real signals, real databases, clients as users have them. It holds
// tests only.
//
// The tests take a seed from HERMES_E2E_SEED (printed when it is not set) and a size from HERMES_E2E_MESSAGES.
package e2e

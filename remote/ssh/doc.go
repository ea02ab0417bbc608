// Package ssh reaches a node: it reads the operator's SSH configuration,
// connects, installs the program there and carries the agent's socket.
package ssh

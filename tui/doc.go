// Package tui is the console: it draws Snapshots and turns keys into Intents.
// It is a window on the agent and owns nothing; all it asks goes through the
// Source and Deck ports.
package tui

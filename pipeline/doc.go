// Package pipeline is the core: what a deck is, what was seen of it, what it
// means and what an action would do. It decides on plain data; time,
// randomness and the world come in as arguments, and the outside is reached
// only through the ports declared here.
package pipeline

// Package archtest holds the laws of the house, as tests: which room may know
// which, and what no room below main may do. Each law says why it is there.
package archtest

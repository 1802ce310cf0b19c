// Package client is a worker's side of a Parameter Service: the Agent, which knows which
// Aggregator each tensor is at, pushes gradients there and pulls models, and follows tensors
// that move; and Loop, a training job that only has to compute gradients, or to pretend to.
//
// An Agent speaks with pMaster over a control.Link. With control.StaticWorker there is none: each
// tensor stays at one server of the job's own, as with ps-lite.
package client

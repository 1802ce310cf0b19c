// Package wire is how pMaster and the nodes of a Parameter Service talk: messages of package control
// over gRPC. It has both directions of the code, and the nodes' end of the connection, Link.
//
// Nothing is believed that comes in: Decode looks at every field, and says everything that is
// wrong with a message at once.
//
// A link lasts as long as its process, and longer than pMaster's. While there is no connection
// nothing is kept for later, as a new pMaster must not hear what was meant for the one before; the
// protocol repeats what is not answered. Only that a worker has finished or failed is said again to
// every pMaster.
package wire

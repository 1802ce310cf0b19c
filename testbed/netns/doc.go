// Package netns emulates a lab on one Linux machine: every host and every switch
// of an inventory is a process in a network namespace of its own, cabled with veth
// pairs. Up returns a testbed.Fabric whose inventory points at SSH servers and
// P4Runtime servers inside, so that what drives a lab drives the emulation.
//
// It needs no root and leaves nothing behind. Reexec runs the whole program again
// inside new namespaces; these are held by processes and descriptors, never by
// names, and the first process inside dies with the one outside. Whatever is
// killed, the kernel takes the rest down.
//
// # What is there
//
// netns.Reexec runs the whole program again as a child in fresh user, network, mount, pid, ipc and
// uts namespaces (no user namespace for root). Inside, a first process makes a private tmpfs and
// starts the program proper, which then brings up:
//
//   - a management bridge that reaches every node, apart from the data cables;
//   - one process per host, in namespaces of its own: an SSH server, its own /proc and /sys, and a
//     data device for each NIC;
//   - one process per switch, in a network namespace of its own: P4Runtime on the management
//     network, a device for each port;
//   - a veth pair for each cable, offloads off.
//
// With sshd = "openssh" a host's SSH server is the machine's sshd instead, so that the client code
// meets what a lab's hosts run. It runs in a user namespace below the host's, as the ordinary user
// lab: a server of root would change groups, which no user namespace of one user allows, and one
// that is not root has nothing to change. Its keys, its configuration and the host's /etc/passwd
// are generated, /etc/ssh is empty, and port 22 is for everybody in that network namespace.
//
// Agents are started over SSH, with a fixed command line and all parameters as JSON on stdin, so
// nothing from a file meets a remote shell. An agent whose stdin ends, ends.
//
// Nothing can leak. Namespaces are held by processes and descriptors, never by names. The first
// process inside holds a pipe to the one outside, the lifeline: when either goes, so does the pid
// namespace and everything in it.
package netns

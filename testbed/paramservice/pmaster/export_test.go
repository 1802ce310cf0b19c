package pmaster

// Abandon ends as a crash of the process does: nobody is told, Aggregators go on, and whoever comes
// next takes over. stop ends the gRPC server, without which streams do not end.
func (m *Master) Abandon(stop func()) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.closed = true
	for _, j := range m.jobs {
		j.stop()
	}
	m.mu.Unlock()
	stop()
	m.cancel()
	m.work.Wait()
	_ = m.file.f.Close()
}

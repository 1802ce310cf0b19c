package inventory

type topologyIndex struct{}

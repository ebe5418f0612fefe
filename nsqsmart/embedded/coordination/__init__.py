"""Which node leads which partition: what etcd and the lookup daemons settle among themselves."""

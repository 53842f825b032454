package config

// ownPrefix begins the names of settings that Kafka does not have.
const ownPrefix = "kaja."

// kajaTable is the part of the server's table that Kafka does not know.
var kajaTable = []Def{
	{Name: "kaja.clock.jump.hold.ms", Type: Long, Default: "86400000", Valid: atLeast(1), Status: Enforced,
		Doc: "Time that a jump of the wall clock, forwards or backwards, must stand before retention and the expiry of producers go by it; until then they go by the time before the jump."},
	{Name: "kaja.cluster.id", Type: String, NoDefault: true, Status: Enforced,
		Doc: "Cluster id to give to an empty data directory, 22 characters of URL-safe base64; without it one is drawn. A directory that has another cluster's id is refused."},
	{Name: "kaja.cluster.secret", Type: Password, NoDefault: true, Status: Enforced,
		Doc: "What the nodes of a cluster prove to each other, the same on all of them, 16 characters or more. Two or more nodes need it, or SSL with required client certificates on the listeners of nodes (docs/cluster.md); a node with it can be joined by others."},
	{Name: "kaja.disk.hang.timeout.ms", Type: Long, Default: "10000", Valid: atLeast(100), Status: Enforced,
		Doc: "Time without a sign of a disk, while something waits for it, after which a node of a cluster gives up its leaderships and the role of the controller; it takes them again once the disk has worked for half as long."},
	{Name: "kaja.disk.reserve.bytes", Type: Long, Default: "-1", Valid: atLeast(-1), Status: Enforced,
		Doc: "Bytes of a log directory's file system that records of clients' topics leave free, so that the controller's log, committed offsets and checkpoints can still be written; -1 is a 32nd of the file system, at most 64 MiB, and 0 none."},
	{Name: "kaja.fsync", Type: String, Default: FsyncAuto, Valid: oneOf(FsyncAuto, FsyncAlways, FsyncNever), Scope: ClusterWide, Status: Enforced,
		Doc: "Default of the topic config of this name, and the rule for internal topics."},
	{Name: "kaja.http.listener", Type: String, Default: "127.0.0.1:9644", Status: Enforced,
		Doc: "host:port of /metrics, /livez, /readyz and /healthz; empty switches them off. The default being taken by another process is a warning, a configured address an error."},
	{Name: "kaja.log.format", Type: String, Default: LogAuto, Valid: oneOf(LogAuto, LogText, LogJSON), Status: Enforced,
		Doc: "Form of the node's own log: auto is text, coloured on a terminal; text is without colours everywhere; json is one object a line, and no start screen."},
	{Name: "kaja.log.level", Type: String, Default: "info", Valid: oneOfFold("debug", "info", "warn", "error"), Status: Enforced,
		Doc: "Level from which on the node logs."},
	{Name: "kaja.open.files.max", Type: Int, Default: "0", Valid: atLeast(0), Status: Enforced,
		Doc: "Descriptors that partition logs share; those not used for longest are closed, and opened again when needed. 0 is half of the process's limit."},
	{Name: "kaja.scrub.bytes.per.second", Type: Long, Default: "10485760", Valid: atLeast(0), Status: Enforced,
		Doc: "Bytes per second that the scrubber reads of sealed segments, to find damage before a reader does; a pass over 1 TiB takes 29 hours at the default. 0 switches it off."},
	{Name: "kaja.scrub.interval.ms", Type: Long, Default: "604800000", Valid: atLeast(1000), Status: Enforced,
		Doc: "Time from the begin of one pass of the scrubber to that of the next, if a pass does not take longer."},
}

// Values of kaja.log.format.
const (
	LogAuto = "auto"
	LogText = "text"
	LogJSON = "json"
)

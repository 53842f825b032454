package config

// Values of kaja.fsync.
const (
	FsyncAuto   = "auto"   // wait for the disk where one replica alone would answer for the data
	FsyncAlways = "always" // every replica syncs before it counts
	FsyncNever  = "never"  // leave it to the page cache
)

// topics is the table of topic configs. Names, defaults and bounds are those of Kafka 4.4.
var topics = newTable(topicTable)

// topicsDescribed is the table in the order of DescribeConfigs.
var topicsDescribed = topics.inOrder(topicOrder)

// TopicDefs is every topic config, sorted by name, hidden ones included. The caller must not change it.
func TopicDefs() []*Def { return topics.defs }

// TopicDef finds a topic config by its name.
func TopicDef(name string) (*Def, bool) { return topics.lookup(name) }

const (
	maxLong            = "9223372036854775807"
	maxArray           = 2147483639 // the longest array of a JVM: Kafka's bound for an inflated batch
	hourMs, minuteMs   = 3600000, 60000
	throttledReplicasE = "Replicas of the topic, as partition:broker or * for all, whose replication traffic is throttled on the "
)

func same(names ...string) []Synonym {
	s := make([]Synonym, len(names))
	for i, n := range names {
		s[i] = Synonym{Name: n, Scale: 1}
	}
	return s
}

var topicTable = []Def{
	{Name: "cleanup.policy", Type: List, Default: "delete", Valid: oneOf("compact", "delete"), Scope: PerTopic, Status: Enforced, Synonyms: same("log.cleanup.policy"),
		Doc: "What happens to old segments: delete drops them by time and size, compact keeps the newest record of each key, both do both, and an empty value keeps everything."},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Valid: gzipLevel{}, Scope: PerTopic, Status: Enforced, Synonyms: same("compression.gzip.level"),
		Doc: "Level used when the broker itself compresses with gzip; -1 is the codec's own default."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Valid: between(1, 17), Scope: PerTopic, Status: Enforced, Synonyms: same("compression.lz4.level"),
		Doc: "Level used when the broker itself compresses with lz4."},
	{Name: "compression.type", Type: String, Default: "producer", Valid: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Scope: PerTopic, Status: Enforced, Synonyms: same("compression.type"),
		Doc: "Codec of the stored batches; producer keeps what was sent."},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Valid: between(-131072, 22), Scope: PerTopic, Status: Enforced, Synonyms: same("compression.zstd.level"),
		Doc: "Level used when the broker itself compresses with zstd."},
	{Name: "delete.retention.ms", Type: Long, Default: "86400000", Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("log.cleaner.delete.retention.ms"),
		Doc: "How long compaction keeps a tombstone, so that a reader that started from the beginning still sees it."},
	{Name: "errors.deadletterqueue.group.enable", Type: Boolean, Default: "false", Scope: PerTopic, Status: DefaultOnly,
		Doc: "Allows share groups to use this topic as their dead letter queue."},
	{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("log.segment.delete.delay.ms"),
		Doc: "Time between marking a file as deleted and removing it."},
	{Name: "flush.messages", Type: Long, Default: maxLong, Valid: atLeast(1), Scope: PerTopic, Status: Enforced, Synonyms: same("log.flush.interval.messages"),
		Doc: "Number of records after which the log is synced to disk, besides what kaja.fsync asks for."},
	{Name: "flush.ms", Type: Long, Default: maxLong, Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
		Doc: "Time after which the log is synced to disk, besides what kaja.fsync asks for."},
	{Name: "follower.replication.throttled.replicas", Type: List, Default: "", Valid: throttledReplicas{}, Scope: PerTopic, Status: DefaultOnly,
		Doc: throttledReplicasE + "follower's side."},
	{Name: "index.interval.bytes", Type: Int, Default: "4096", Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("log.index.interval.bytes"),
		Doc: "Bytes of log between two entries of the offset index."},
	{Name: "internal.segment.bytes", Type: Int, NoDefault: true, Scope: PerTopic, Status: Enforced, Hidden: true,
		Doc: "Segment size below the bound of segment.bytes, for tests."},
	{Name: "kaja.fsync", Type: String, Default: FsyncAuto, Valid: oneOf(FsyncAuto, FsyncAlways, FsyncNever), Scope: PerTopic, Status: Enforced, Synonyms: same("kaja.fsync"),
		Doc: "When a record has to be on the disk before it is acknowledged: auto where a single replica is in sync, always on every replica, never leaves it to the page cache (docs/durability.md)."},
	{Name: "leader.replication.throttled.replicas", Type: List, Default: "", Valid: throttledReplicas{}, Scope: PerTopic, Status: DefaultOnly,
		Doc: throttledReplicasE + "leader's side."},
	{Name: "local.retention.bytes", Type: Long, Default: "-2", Valid: atLeast(-2), Scope: PerTopic, Status: DefaultOnly, Synonyms: same("log.local.retention.bytes"),
		Doc: "Local bytes of a partition with tiered storage; -2 means the value of retention.bytes."},
	{Name: "local.retention.ms", Type: Long, Default: "-2", Valid: atLeast(-2), Scope: PerTopic, Status: DefaultOnly, Synonyms: same("log.local.retention.ms"),
		Doc: "Time that a partition with tiered storage keeps a segment locally; -2 means the value of retention.ms."},
	{Name: "max.compaction.lag.ms", Type: Long, Default: maxLong, Valid: atLeast(1), Scope: PerTopic, Status: Enforced, Synonyms: same("log.cleaner.max.compaction.lag.ms"),
		Doc: "Longest time that a record may stay uncompacted; it also bounds segment.ms of a compacted topic."},
	{Name: "max.decompressed.message.bytes", Type: Int, Default: "2147483639", Valid: between(1, maxArray), Scope: PerTopic, Status: Enforced, Synonyms: same("max.decompressed.message.bytes"),
		Doc: "Most bytes that a compressed batch may inflate to; a larger one is refused."},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("message.max.bytes"),
		Doc: "Largest batch, as sent, that the topic accepts."},
	{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("log.message.timestamp.after.max.ms"),
		Doc: "How far a record's timestamp may lie ahead of the broker's clock."},
	{Name: "message.timestamp.before.max.ms", Type: Long, Default: maxLong, Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("log.message.timestamp.before.max.ms"),
		Doc: "How far a record's timestamp may lie behind the broker's clock."},
	{Name: "message.timestamp.type", Type: String, Default: "CreateTime", Valid: oneOf("CreateTime", "LogAppendTime"), Scope: PerTopic, Status: Enforced, Synonyms: same("log.message.timestamp.type"),
		Doc: "Whose clock a record's timestamp comes from: the producer's (CreateTime) or the broker's (LogAppendTime)."},
	{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Valid: between(0, 1), Scope: PerTopic, Status: Enforced, Synonyms: same("log.cleaner.min.cleanable.ratio"),
		Doc: "Share of uncompacted bytes from which on a log is worth compacting."},
	{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Valid: atLeast(0), Scope: PerTopic, Status: Enforced, Synonyms: same("log.cleaner.min.compaction.lag.ms"),
		Doc: "Shortest time that a record stays uncompacted."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Valid: atLeast(1), Scope: PerTopic, Status: Enforced, Synonyms: same("min.insync.replicas"),
		Doc: "In-sync replicas that a write with acks=all needs."},
	{Name: "preallocate", Type: Boolean, Default: "false", Scope: PerTopic, Status: Enforced, Synonyms: same("log.preallocate"),
		Doc: "Reserves the whole segment on disk when it is made."},
	{Name: "remote.copy.lag.bytes", Type: Long, Default: "-1", Valid: atLeast(-1), Scope: PerTopic, Status: DefaultOnly, Synonyms: same("log.remote.copy.lag.bytes"),
		Doc: "Bytes that tiered storage leaves between the end of the log and what it copies."},
	{Name: "remote.copy.lag.ms", Type: Long, Default: "0", Valid: atLeast(-1), Scope: PerTopic, Status: DefaultOnly, Synonyms: same("log.remote.copy.lag.ms"),
		Doc: "Age that a segment needs before tiered storage copies it."},
	{Name: "remote.log.copy.disable", Type: Boolean, Default: "false", Scope: PerTopic, Status: DefaultOnly,
		Doc: "Stops copying to tiered storage and keeps what is there readable."},
	{Name: "remote.log.delete.on.disable", Type: Boolean, Default: "false", Scope: PerTopic, Status: DefaultOnly,
		Doc: "Deletes the remote data when tiered storage is switched off for the topic."},
	{Name: "remote.storage.enable", Type: Boolean, Default: "false", Scope: PerTopic, Status: DefaultOnly,
		Doc: "Tiered storage for the topic."},
	{Name: "retention.bytes", Type: Long, Default: "-1", Scope: PerTopic, Status: Enforced, Synonyms: same("log.retention.bytes"),
		Doc: "Bytes of a partition above which its oldest segments are deleted; a negative value means no bound."},
	{Name: "retention.ms", Type: Long, Default: "604800000", Valid: atLeast(-1), Scope: PerTopic, Status: Enforced,
		Synonyms: []Synonym{{"log.retention.ms", 1}, {"log.retention.minutes", minuteMs}, {"log.retention.hours", hourMs}},
		Doc:      "Age, by the largest timestamp in it, from which on a segment is deleted; -1 means never."},
	{Name: "segment.bytes", Type: Int, Default: "1073741824", Valid: atLeast(1048576), Scope: PerTopic, Status: Enforced, Synonyms: same("log.segment.bytes"),
		Doc: "Size from which on a new segment is begun."},
	{Name: "segment.index.bytes", Type: Int, Default: "10485760", Valid: atLeast(4), Scope: PerTopic, Status: Enforced, Synonyms: same("log.index.size.max.bytes"),
		Doc: "Largest size of a segment's offset index; when it is full a new segment is begun."},
	{Name: "segment.jitter.ms", Type: Long, Default: "0", Valid: atLeast(0), Scope: PerTopic, Status: Enforced,
		Synonyms: []Synonym{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", hourMs}},
		Doc:      "Random time, up to this much, by which a segment is begun earlier than segment.ms says."},
	{Name: "segment.ms", Type: Long, Default: "604800000", Valid: atLeast(1), Scope: PerTopic, Status: Enforced,
		Synonyms: []Synonym{{"log.roll.ms", 1}, {"log.roll.hours", hourMs}},
		Doc:      "Age from which on a new segment is begun even if the current one is not full."},
	{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", Scope: PerTopic, Status: Enforced, Synonyms: same("unclean.leader.election.enable"),
		Doc: "Allows a replica that is not in sync to become leader, which may lose records."},
}

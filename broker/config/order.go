package config

import (
	"cmp"
	"slices"
	"strings"
)

// The order in which a running Kafka 4.4.0 lists the configs of a topic and of a broker in DescribeConfigs: that of the
// hash tables it keeps them in, the same for every topic and every node. Its tools print what they get in this order, so
// kaja keeps it. A setting that is not in a list (kaja's own) comes behind it, by name; internal.segment.bytes comes first
// in Kafka where it is set.
//
// The settings altered for all brokers lie in a table that grows with their number: see hashOrder.
const (
	topicOrder = `internal.segment.bytes
compression.type errors.deadletterqueue.group.enable remote.copy.lag.bytes remote.log.delete.on.disable
leader.replication.throttled.replicas remote.storage.enable min.insync.replicas segment.jitter.ms
remote.log.copy.disable local.retention.ms cleanup.policy flush.ms follower.replication.throttled.replicas
compression.lz4.level segment.bytes retention.ms compression.gzip.level remote.copy.lag.ms flush.messages
compression.zstd.level max.compaction.lag.ms file.delete.delay.ms max.message.bytes min.compaction.lag.ms
message.timestamp.type local.retention.bytes preallocate index.interval.bytes min.cleanable.dirty.ratio
unclean.leader.election.enable retention.bytes delete.retention.ms message.timestamp.after.max.ms
max.decompressed.message.bytes message.timestamp.before.max.ms segment.ms segment.index.bytes`
	brokerOrder = `
log.cleaner.min.compaction.lag.ms offsets.topic.num.partitions sasl.oauthbearer.jwks.endpoint.refresh.ms
remote.log.metadata.manager.listener.name log.flush.interval.messages controller.socket.timeout.ms
log.flush.interval.ms principal.builder.class controller.quorum.request.timeout.ms
errors.deadletterqueue.auto.create.topics.enable min.insync.replicas sasl.oauthbearer.expected.audience
remote.log.manager.thread.pool.size group.consumer.max.session.timeout.ms num.recovery.threads.per.data.dir
ssl.keystore.type sasl.oauthbearer.assertion.private.key.file share.coordinator.state.topic.replication.factor
controller.quorum.bootstrap.servers sasl.mechanism.inter.broker.protocol metadata.log.segment.bytes
fetch.purgatory.purge.interval.requests group.streams.num.standby.replicas group.share.record.lock.duration.ms
ssl.endpoint.identification.algorithm replica.socket.timeout.ms message.max.bytes
share.coordinator.state.topic.segment.bytes remote.log.manager.fetch.max.bytes.per.second
group.share.session.timeout.ms max.connection.creation.rate sasl.oauthbearer.assertion.claim.exp.seconds
connections.max.reauth.ms share.coordinator.state.topic.min.isr remote.log.manager.copy.quota.window.size.seconds
log.flush.offset.checkpoint.interval.ms sasl.oauthbearer.assertion.claim.aud quota.window.num
sasl.oauthbearer.clock.skew.seconds group.share.min.assignment.interval.ms group.consumer.min.session.timeout.ms
authorizer.class.name num.replica.fetchers alter.log.dirs.replication.quota.window.size.seconds sasl.oauthbearer.scope
sasl.oauthbearer.jwks.endpoint.url remote.log.metadata.custom.metadata.max.bytes log.roll.jitter.hours
telemetry.max.bytes log.cleaner.delete.retention.ms sasl.oauthbearer.assertion.file sasl.login.retry.backoff.ms
queued.max.requests log.cleaner.threads sasl.kerberos.service.name socket.request.max.bytes group.consumer.max.size
group.consumer.assignors remote.log.storage.system.enable group.streams.assignors log.message.timestamp.type
connections.max.idle.ms max.connections delegation.token.expiry.time.ms transaction.state.log.num.partitions
controller.quorum.election.timeout.ms listener.security.protocol.map log.retention.hours client.quota.callback.class
remote.log.storage.manager.impl.prefix ssl.provider delete.records.purgatory.purge.interval.requests
producer.id.expiration.ms log.roll.ms ssl.cipher.suites controller.quorum.retry.backoff.ms
remote.log.manager.copy.max.bytes.per.second broker.session.timeout.ms security.inter.broker.protocol
group.consumer.assignment.interval.ms group.share.heartbeat.interval.ms delegation.token.secret.key
remote.log.manager.fetch.quota.window.num remote.fetch.max.wait.ms group.streams.max.heartbeat.interval.ms
sasl.oauthbearer.assertion.claim.jti.include node.id replica.high.watermark.checkpoint.interval.ms
replication.quota.window.size.seconds log.local.retention.ms share.coordinator.append.linger.ms
remote.log.reader.threads share.coordinator.snapshot.update.records.per.snapshot
follower.fetch.last.tiered.offset.enable sasl.kerberos.ticket.renew.window.factor group.coordinator.threads
sasl.oauthbearer.assertion.private.key.passphrase metrics.recording.level sasl.oauthbearer.assertion.template.file
log.dir.failure.timeout.ms transaction.partition.verification.enable controller.quorum.auto.join.enable
group.share.min.heartbeat.interval.ms ssl.principal.mapping.rules remote.log.manager.fetch.quota.window.size.seconds
replica.selector.class max.connections.per.ip background.threads group.streams.max.assignment.interval.ms
request.timeout.ms add.partitions.to.txn.retry.backoff.ms sasl.login.class
remote.log.index.file.cache.total.size.bytes log.dir log.segment.bytes replica.fetch.response.max.bytes
group.max.session.timeout.ms group.consumer.heartbeat.interval.ms controller.listener.names
log.message.timestamp.after.max.ms controller.quorum.append.linger.ms log.retention.minutes
log.segment.delete.delay.ms log.dirs early.start.listeners controlled.shutdown.enable
share.coordinator.state.topic.compression.codec log.message.timestamp.before.max.ms
group.share.min.partition.max.record.locks remote.log.manager.copier.thread.pool.size
socket.connection.setup.timeout.max.ms sasl.login.refresh.min.period.seconds sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.expected.issuer sasl.login.read.timeout.ms
transaction.abort.timed.out.transaction.cleanup.interval.ms sasl.kerberos.kinit.cmd
group.consumer.min.assignment.interval.ms log.cleaner.io.max.bytes.per.second auto.leader.rebalance.enable
leader.imbalance.check.interval.seconds log.cleaner.min.cleanable.ratio group.share.min.record.lock.duration.ms
replica.lag.time.max.ms num.network.threads group.share.min.session.timeout.ms ssl.keystore.key
sasl.client.callback.handler.class compression.gzip.level metrics.num.samples socket.send.buffer.bytes
group.coordinator.rebalance.protocols remote.log.storage.manager.class.name socket.receive.buffer.bytes
group.streams.initial.rebalance.delay.ms replica.fetch.min.bytes group.streams.max.session.timeout.ms
sasl.oauthbearer.sub.claim.name broker.rack unclean.leader.election.enable
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms max.decompressed.message.bytes offsets.retention.check.interval.ms
group.share.min.delivery.count.limit producer.purgatory.purge.interval.requests controller.quorum.voters
group.share.assignors metrics.sample.window.ms log.remote.copy.lag.ms log.retention.check.interval.ms
group.consumer.session.timeout.ms sasl.login.refresh.window.jitter group.share.max.assignment.interval.ms
controller.quota.window.num group.streams.session.timeout.ms metric.reporters sasl.oauthbearer.token.endpoint.url
auto.create.topics.enable group.share.partition.max.record.locks ssl.engine.factory.class
replica.socket.receive.buffer.bytes ssl.allow.dn.changes replica.fetch.wait.max.ms log.remote.copy.lag.bytes
group.coordinator.background.threads group.consumer.min.heartbeat.interval.ms group.share.max.delivery.count.limit
group.streams.min.session.timeout.ms default.replication.factor group.streams.topology.description.plugin.class
ssl.truststore.password group.share.assignment.interval.ms log.preallocate sasl.kerberos.principal.to.local.rules
remote.log.reader.max.pending.tasks transactional.id.expiration.ms transaction.state.log.replication.factor
num.io.threads group.streams.max.size sasl.login.refresh.buffer.seconds connection.failed.authentication.delay.ms
group.share.max.heartbeat.interval.ms share.coordinator.write.timeout.ms delete.topic.enable quota.window.size.seconds
ssl.truststore.type offsets.commit.timeout.ms sasl.oauthbearer.assertion.algorithm broker.heartbeat.interval.ms
sasl.mechanism.controller.protocol group.share.max.record.lock.duration.ms log.cleaner.max.compaction.lag.ms
group.streams.rack.aware.assignment.tags remote.log.storage.manager.class.path log.retention.ms
share.fetch.purgatory.purge.interval.requests alter.log.dirs.replication.quota.window.num log.cleaner.enable
controller.quorum.fetch.timeout.ms offsets.load.buffer.size ssl.client.auth errors.deadletterqueue.topic.name.prefix
offsets.topic.replication.factor transaction.state.log.min.isr ssl.secure.random.implementation
sasl.kerberos.ticket.renew.jitter ssl.trustmanager.algorithm group.streams.assignment.interval.ms
log.local.retention.bytes log.retention.bytes remote.log.metadata.manager.impl.prefix
controller.quota.window.size.seconds sasl.jaas.config sasl.oauthbearer.allow.unverified.issuer
share.coordinator.state.topic.num.partitions sasl.kerberos.min.time.before.relogin offsets.retention.minutes
replica.fetch.backoff.ms group.share.delivery.count.limit kafka.metrics.reporters compression.zstd.level
ssl.allow.san.changes remote.log.manager.copy.quota.window.num num.partitions ssl.keystore.certificate.chain
socket.connection.setup.timeout.ms listeners sasl.oauthbearer.client.credentials.client.id ssl.enabled.protocols
inter.broker.listener.name sasl.oauthbearer.assertion.claim.nbf.seconds alter.config.policy.class.name
delegation.token.expiry.check.interval.ms log.flush.scheduler.interval.ms
remote.log.manager.expiration.thread.pool.size group.consumer.max.assignment.interval.ms log.index.size.max.bytes
group.share.max.share.sessions ssl.keymanager.algorithm sasl.login.callback.handler.class replica.fetch.max.bytes
sasl.server.callback.handler.class share.coordinator.cached.buffer.max.bytes log.cleaner.dedupe.buffer.size
log.cleaner.io.buffer.size config.providers create.topic.policy.class.name socket.listen.backlog.size
ssl.truststore.certificates controller.quorum.fetch.snapshot.max.bytes sasl.oauthbearer.jwt.validator.class
share.coordinator.threads sasl.server.max.receive.size security.providers metadata.log.max.snapshot.interval.ms
group.streams.max.standby.replicas compression.lz4.level log.roll.hours controller.quorum.fetch.max.bytes
log.cleanup.policy initial.broker.registration.timeout.ms log.flush.start.offset.checkpoint.interval.ms
log.roll.jitter.ms transaction.state.log.segment.bytes offsets.topic.segment.bytes
sasl.oauthbearer.assertion.claim.sub metadata.max.idle.interval.ms remote.log.metadata.manager.class.name
sasl.oauthbearer.client.credentials.client.secret remote.log.manager.task.interval.ms sasl.login.retry.backoff.max.ms
sasl.oauthbearer.allow.unverified.audience group.initial.rebalance.delay.ms log.index.interval.bytes
log.cleaner.backoff.ms share.coordinator.load.buffer.size cordoned.log.dirs offset.metadata.max.bytes
ssl.truststore.location ssl.keystore.password transaction.two.phase.commit.enable fetch.max.bytes
metadata.max.retention.bytes compression.type group.streams.min.assignment.interval.ms sasl.login.connect.timeout.ms
max.connections.per.ip.overrides remote.log.metadata.manager.class.path group.consumer.max.heartbeat.interval.ms
sasl.login.refresh.window.factor kafka.metrics.polling.interval.secs add.partitions.to.txn.retry.backoff.max.ms
remote.log.manager.follower.thread.pool.size metadata.log.max.record.bytes.between.snapshots metadata.max.retention.ms
group.share.max.size controller.quorum.election.backoff.max.ms max.incremental.fetch.session.cache.slots
sasl.oauthbearer.assertion.claim.iss group.share.max.partition.max.record.locks ssl.key.password
transaction.remove.expired.transaction.cleanup.interval.ms ssl.protocol group.consumer.migration.policy
metadata.log.segment.ms transaction.state.log.load.buffer.size group.coordinator.append.linger.ms
ssl.keystore.location remote.list.offsets.request.timeout.ms num.replica.alter.log.dirs.threads
sasl.enabled.mechanisms sasl.oauthbearer.jwt.retriever.class group.share.max.session.timeout.ms
group.min.session.timeout.ms metadata.log.dir log.cleaner.io.buffer.load.factor transaction.max.timeout.ms
group.streams.heartbeat.interval.ms process.roles group.max.size broker.id max.request.partition.size.limit
offsets.topic.compression.codec sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms delegation.token.max.lifetime.ms
replication.quota.window.num group.streams.min.heartbeat.interval.ms advertised.listeners
group.coordinator.cached.buffer.max.bytes queued.max.request.bytes`
)

// inOrder gives the table's settings in the order of names; those that it does not name follow in the order of the table.
func (t table) inOrder(names string) []*Def {
	rank := map[string]int{}
	for i, name := range strings.Fields(names) {
		rank[name] = i
	}
	place := func(d *Def) int {
		if r, ok := rank[d.Name]; ok {
			return r
		}
		return len(rank)
	}
	defs := slices.Clone(t.defs)
	slices.SortStableFunc(defs, func(a, b *Def) int { return place(a) - place(b) })
	return defs
}

// hashOrder compares settings by their places in a hash table that holds n of them as Kafka 4.4.0 holds what was altered
// for all brokers: 16 buckets at first, twice as many whenever three quarters are reached; by the bucket, which the low bits
// of Java's string hash folded once choose, and within it by the folded hash. Asked of a running one for 1 to 16 settings.
func hashOrder(n int) func(a, b Entry) int {
	buckets := int32(16)
	for n >= int(buckets)*3/4 {
		buckets *= 2
	}
	return func(a, b Entry) int {
		x, y := foldedHash(a.Def.Name), foldedHash(b.Def.Name)
		return cmp.Or(cmp.Compare(x&(buckets-1), y&(buckets-1)), cmp.Compare(x, y))
	}
}

// foldedHash is Java's hash of an ASCII string, its upper half folded into the lower.
func foldedHash(s string) int32 {
	var h uint32
	for i := range len(s) {
		h = 31*h + uint32(s[i])
	}
	return int32(h ^ h>>16)
}

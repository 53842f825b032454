"""confluent-kafka (librdkafka) as a program of the client matrix."""
import time

import scenario as s
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic,
                                   OffsetSpec, ResourceType)

base = {"bootstrap.servers": s.addresses, "client.id": s.name}
# A librdkafka that begins anew when its only broker is gone (2.16) forgets its coordinators and waits for them for good.
base["metadata.recovery.strategy"] = "none"
COUNT = s.PER_CODEC * len(s.CODECS)
client = AdminClient(base)


def until(condition, seconds=60):
    """Kafka answers before a change can be seen, and other nodes know it later."""
    def holds():
        try:
            return condition()
        except KafkaException:
            return False

    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def results(futures):
    return [f.result(30) for f in futures.values()]


def admin():
    results(client.create_topics([NewTopic(s.name, 2, s.replicas, config={"retention.ms": "3600000"})]))
    s.check("topic is listed", until(lambda: s.name in client.list_topics(timeout=10).topics))
    resource = ConfigResource(ResourceType.TOPIC, s.name, incremental_configs=[
        ConfigEntry("max.message.bytes", "700000", incremental_operation=AlterConfigOpType.SET)])
    results(client.incremental_alter_configs([resource]))
    s.check("config altered", until(lambda: results(client.describe_configs([ConfigResource(ResourceType.TOPIC, s.name)]))[0]["max.message.bytes"].value == "700000"))


def send(producer, topic, values, **more):
    errors = []
    for value in values:
        producer.produce(topic, key=str(value), value=str(value), on_delivery=lambda e, _: errors.append(e) if e else None, **more)
    producer.flush(120)
    if errors or len(producer):
        raise RuntimeError("not delivered: %s, %d left" % (errors[:1], len(producer)))


def consumer(group, topic, **more):
    c = Consumer({**base, "group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200, **more})
    c.subscribe([topic])
    return c


def commit(c):
    """Commits what was read and is not committed yet."""
    try:
        c.commit(asynchronous=False)
        return True
    except KafkaException as e:
        return e.args[0].name() == "_NO_OFFSET"


def codecs():
    for codec in s.CODECS:
        producer = Producer({**base, "compression.type": codec, "acks": "all", "linger.ms": 20})
        for p in range(2):
            send(producer, s.name, ["%s-%d" % (codec, i) for i in range(p, s.PER_CODEC, 2)], partition=p, headers=[("codec", codec.encode()), ("null", None)])
        s.check("produced with " + codec, True)
    c, messages, end = consumer(s.name + "-g", s.name), [], time.monotonic() + 60
    while len(messages) < COUNT and time.monotonic() < end:
        messages += [m for m in c.consume(500, 1.0) if not m.error()]
    s.check("group reads all", len({(m.partition(), m.offset()) for m in messages}) == COUNT == len(messages), len(messages))
    s.check("keys, values, headers", all(m.key() == m.value() and m.headers() == [("codec", m.key().split(b"-")[0]), ("null", None)] for m in messages))
    for p in range(2):
        s.check("order of partition %d" % p, [m.offset() for m in messages if m.partition() == p] == list(range(COUNT // 2)))
    s.check("commit", commit(c))
    c.close()
    reader = Consumer({**base, "group.id": s.name + "-g"})
    s.check("committed", [p.offset for p in reader.committed([TopicPartition(s.name, p) for p in range(2)], timeout=20)] == [COUNT // 2] * 2)
    s.check("watermarks", reader.get_watermark_offsets(TopicPartition(s.name, 0), timeout=20) == (0, COUNT // 2))
    times = reader.offsets_for_times([TopicPartition(s.name, 0, 0), TopicPartition(s.name, 1, int(time.time() * 1000) + 86400000)], timeout=20)
    s.check("offsets for times", times[0].offset == 0 and times[1].offset == -1, times)
    reader.close()


def flow():
    producer = Producer({**base, "enable.idempotence": True, "reconnect.backoff.max.ms": 500})
    s.flow(lambda values: send(producer, s.name + "-flow", values))


def txn():
    made = []
    group = Consumer({**base, "group.id": s.name + "-txn-g"})

    def renew():
        made[:] = [Producer({**base, "transactional.id": s.name + "-id", "transaction.timeout.ms": 30000, "reconnect.backoff.max.ms": 500})]
        retrying(made[0].init_transactions)

    def attempt(i, values, commit):
        producer = made[0]
        producer.begin_transaction()
        send(producer, s.name + "-txn", values)
        retrying(producer.send_offsets_to_transaction, [TopicPartition(s.name + "-flow", 0, i + 1)], group.consumer_group_metadata())
        retrying(producer.commit_transaction if commit else producer.abort_transaction)

    renew()
    s.transactions(attempt, renew)
    group.close()


def retrying(call, *args):
    """Repeats a call for as long as its error may be retried, at most for half a minute: a librdkafka whose only broker was gone may
    wait for its coordinator for good, and another producer finds it."""
    end = time.monotonic() + 30
    while True:
        try:
            return call(*args, 10)
        except KafkaException as e:
            if not e.args[0].retriable() or time.monotonic() > end:
                raise


def group(mode):
    more = {"session.timeout.ms": 10000, "heartbeat.interval.ms": 500, "reconnect.backoff.max.ms": 500,
            "partition.assignment.strategy": "cooperative-sticky" if mode == "cooperative" else "range"}

    def join(mode, member):
        c = consumer(s.name + "-" + mode, s.name + "-group", **more, **({"group.instance.id": "i%d" % member} if mode == "static" else {}))

        def close():
            s.check("last commit", until(lambda: commit(c)))
            c.close()
        return lambda: [m.value().decode() for m in c.consume(100, 0.2) if not m.error()], close
    s.group(mode, join)


def end():
    results(client.create_partitions([NewPartitions(s.name, 5)]))
    def ends():
        """It asks with the leader epoch that it knows, which is fenced after a restart until it has asked for metadata again."""
        try:
            return sorted(r.offset for r in results(client.list_offsets({TopicPartition(s.name, 0): OffsetSpec.latest(), TopicPartition(s.name, 1): OffsetSpec.earliest()})))
        except KafkaException:
            client.list_topics(timeout=10)
    s.check("list offsets", until(lambda: ends() == [0, COUNT // 2]), ends())
    groups = client.list_consumer_groups().result(20)
    s.check("group is listed", s.name + "-g" in [g.group_id for g in groups.valid], groups.errors)
    s.check("group is described", results(client.describe_consumer_groups([s.name + "-g"]))[0].state.name == "EMPTY")
    s.check("records deleted", [r.low_watermark for r in results(client.delete_records([TopicPartition(s.name, 0, 10)]))] == [10])
    results(client.delete_consumer_groups([s.name + "-g"]))
    results(client.delete_topics([s.name]))
    s.check("topic is deleted", until(lambda: s.name not in client.list_topics(timeout=10).topics))


s.run(admin=admin, codecs=codecs, flow=flow, txn=txn, group=group, end=end)

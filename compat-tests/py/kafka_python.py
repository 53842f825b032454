"""kafka-python as a program of the client matrix."""
import queue
import threading
import time

import scenario as s
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata

base = {"bootstrap_servers": s.addresses.split(","), "client_id": s.name, "reconnect_backoff_max_ms": 500}
COUNT = s.PER_CODEC * len(s.CODECS)
client = KafkaAdminClient(**base, metadata_max_age_ms=5000)


def admin():
    client.create_topics([NewTopic(s.name, 2, s.replicas)])
    end = time.monotonic() + 30
    while s.name not in client.list_topics() and time.monotonic() < end:
        time.sleep(0.05)
    s.check("topic is listed", s.name in client.list_topics())
    s.check("cluster is described", len(client.describe_cluster()["brokers"]) == len(base["bootstrap_servers"]))


def send(producer, topic, values, **more):
    futures = [producer.send(topic, key=b"%s" % str(v).encode(), value=str(v).encode(), **more) for v in values]
    for f in futures:
        f.get(120)


def codecs():
    for codec in s.CODECS:
        producer = KafkaProducer(**base, compression_type=None if codec == "none" else codec, acks="all", linger_ms=20)
        for p in range(2):
            send(producer, s.name, ["%s-%d" % (codec, i) for i in range(p, s.PER_CODEC, 2)], partition=p, headers=[("h", b"1")])
        s.check("produced with " + codec, True)
        producer.close()
    consumer = KafkaConsumer(s.name, **base, group_id=s.name + "-g", auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=60000)
    messages = [m for _, m in zip(range(COUNT), consumer)]
    s.check("group reads all", len({(m.partition, m.offset) for m in messages}) == COUNT, len(messages))
    s.check("keys, values, headers", all(m.value == m.key and list(m.headers) == [("h", b"1")] for m in messages))
    for p in range(2):
        s.check("order of partition %d" % p, [m.offset for m in messages if m.partition == p] == list(range(COUNT // 2)))
    consumer.commit()
    s.check("commit", consumer.committed(TopicPartition(s.name, 0)) == COUNT // 2)
    consumer.close()
    consumer = KafkaConsumer(**base, group_id=s.name + "-g", consumer_timeout_ms=60000)
    partition = TopicPartition(s.name, 1)
    consumer.assign([partition])
    s.check("position from the commit", consumer.position(partition) == COUNT // 2, consumer.position(partition))
    s.check("end offsets", consumer.end_offsets([partition]) == {partition: COUNT // 2})
    s.check("beginning offsets", consumer.beginning_offsets([partition]) == {partition: 0})
    s.check("offsets for times", consumer.offsets_for_times({partition: 1})[partition].offset == 0)
    consumer.seek(partition, COUNT // 2 - 10)
    s.check("seek", next(consumer).offset == COUNT // 2 - 10)
    consumer.close()


def flow():
    producer = KafkaProducer(**base, acks="all", enable_idempotence=True)
    s.flow(lambda values: send(producer, s.name + "-flow", values))
    producer.close()


def bounded(call, *args):
    """A call that waits for good where the client has forgotten its request (docs/limits.md): given up after a minute."""
    done = queue.Queue()

    def run():
        try:
            done.put((call(*args), None))
        except BaseException as e:
            done.put((None, e))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, error = done.get(timeout=60)
    except queue.Empty:
        raise TimeoutError("%s does not return" % call.__name__)
    if error:
        raise error
    return result


def txn():
    made = []

    def renew():
        for old in made:
            old.close(timeout=1)
        made[:] = [KafkaProducer(**base, transactional_id=s.name + "-id", transaction_timeout_ms=30000)]
        bounded(made[0].init_transactions)

    def attempt(i, values, commit):
        producer = made[0]
        producer.begin_transaction()
        send(producer, s.name + "-txn", values)
        bounded(producer.send_offsets_to_transaction, {TopicPartition(s.name + "-flow", 0): OffsetAndMetadata(i + 1, "", -1)},
                ConsumerGroupMetadata(s.name + "-txn-g", -1, "", None))
        bounded(producer.commit_transaction if commit else producer.abort_transaction)

    renew()
    s.transactions(attempt, renew)
    made[0].close()


def group(mode):
    def join(mode, member):
        consumer = KafkaConsumer(s.name + "-group", **base, group_id=s.name + "-" + mode, auto_offset_reset="earliest", enable_auto_commit=False,
                                 session_timeout_ms=10000, heartbeat_interval_ms=500, group_instance_id="i%d" % member if mode == "static" else None,
                                 partition_assignment_strategy=[CooperativeStickyAssignor if mode == "cooperative" else RangePartitionAssignor])

        def commit():
            try:
                consumer.commit()
                return True
            except KafkaError:
                return False

        def poll():
            # Longer than a join takes: a poll that runs out of time under one may forget it (docs/limits.md).
            messages = [m for of in consumer.poll(timeout_ms=5000).values() for m in of]
            if messages:
                commit()
            return [m.value.decode() for m in messages]

        def close():
            done = commit()
            for _ in range(3):
                if done:
                    break
                poll()  # the other member has left: this client commits nothing before a poll has joined again
                done = commit()
            s.check("last commit", done)
            consumer.close()
        return poll, close
    s.group(mode, join)


def end():
    for _ in range(40):  # it asks the nodes that it knew when it asked for the metadata, and one of them may have been dead then
        listed = s.name + "-g" in str(client.list_groups())
        if listed:
            break
        time.sleep(0.5)
    s.check("group is listed", listed)
    client.delete_groups([s.name + "-g"])
    client.delete_topics([s.name])
    s.check("topic is deleted", True)
    client.close()


s.run(admin=admin, codecs=codecs, flow=flow, txn=txn, group=group, end=end)

"""dump_topic.py ADDRESS TOPIC COUNT: prints key, tab and value of a topic's COUNT records, with confluent-kafka in a group."""
import sys
import time

from confluent_kafka import Consumer

address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": address, "group.id": topic + "-python", "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
read, end, out = 0, time.monotonic() + 400, sys.stdout.buffer
while read < count and time.monotonic() < end:
    for message in consumer.consume(10000, timeout=1.0):
        if message.error():
            raise SystemExit(str(message.error()))
        out.write(message.key() + b"\t" + message.value() + b"\n")
        read += 1
consumer.close()
out.flush()
if read < count:
    raise SystemExit("read %d of %d records" % (read, count))

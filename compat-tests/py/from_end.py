"""from_end.py ADDRESS TOPIC: prints the first record that comes after the start, with kafka-python."""
import sys

from kafka import KafkaConsumer

consumer = KafkaConsumer(sys.argv[2], bootstrap_servers=sys.argv[1], auto_offset_reset="latest", group_id=None,
                         consumer_timeout_ms=30000)
for message in consumer:
    print(message.value.decode(), flush=True)
    break
consumer.close()

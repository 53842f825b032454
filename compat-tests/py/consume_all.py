"""consume_all.py ADDRESS TOPIC PARTITION COUNT: prints the values of a partition's first COUNT records, with kafka-python."""
import sys

from kafka import KafkaConsumer, TopicPartition

address, topic, partition, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, consumer_timeout_ms=20000, check_crcs=True)
consumer.assign([TopicPartition(topic, partition)])
consumer.seek_to_beginning()
for _, message in zip(range(count), consumer):
    sys.stdout.write(message.value.decode() + "\n")
consumer.close()

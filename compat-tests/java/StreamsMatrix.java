import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * StreamsMatrix ADDRESS NAME GUARANTEE REPLICAS DIR: an application of Kafka Streams with one of each kind of operation that keeps
 * state or makes topics. It reads NAME-orders, NAME-payments, NAME-users and NAME-shops and writes NAME-out-KIND. Values are text,
 * "user;shop;amount" of an order. It prints RUNNING when it first is, and ends when its standard input does.
 */
public final class StreamsMatrix {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Duration MINUTE = Duration.ofMinutes(1);

    private final String name;
    private final StreamsBuilder builder = new StreamsBuilder();

    private StreamsMatrix(String name) {
        this.name = name;
    }

    private KStream<String, String> stream(String topic) {
        return builder.stream(name + "-" + topic, Consumed.with(TEXT, TEXT));
    }

    private KTable<String, String> table(String topic) {
        return builder.table(name + "-" + topic, Consumed.with(TEXT, TEXT), store(topic + "-table"));
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> store(String store) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(store).withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private void out(KStream<String, String> s, String kind) {
        s.to(name + "-out-" + kind, Produced.with(TEXT, TEXT));
    }

    private static String user(String order) {
        return order.split(";")[0];
    }

    private static String shop(String order) {
        return order.split(";")[1];
    }

    private static long amount(String order) {
        return Long.parseLong(order.split(";")[2]);
    }

    private static <K> String window(Windowed<K> w) {
        return w.key() + "@" + w.window().start() + "-" + w.window().end();
    }

    private void joins(KStream<String, String> orders) {
        KTable<String, String> users = table("users");
        KTable<String, String> shops = table("shops");
        JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(MINUTE, MINUTE);
        StreamJoined<String, String, String> joined = StreamJoined.with(TEXT, TEXT, TEXT);
        KStream<String, String> payments = stream("payments");
        out(orders.join(payments, (o, p) -> o + "+" + p, near, joined.withStoreName("inner").withName("inner")), "join");
        out(orders.leftJoin(payments, (o, p) -> o + "+" + p, near, joined.withStoreName("left").withName("left")), "leftjoin");
        out(orders.outerJoin(payments, (o, p) -> o + "+" + p, near, joined.withStoreName("outer").withName("outer")), "outerjoin");
        // By another key: through a repartition topic.
        KStream<String, String> byUser = orders.selectKey((k, o) -> user(o)).repartition(Repartitioned.with(TEXT, TEXT).withName("by-user").withNumberOfPartitions(1));
        out(byUser.join(users, (o, u) -> o + " by " + u), "tablejoin");
        out(byUser.leftJoin(users, (o, u) -> o + " by " + u), "tableleftjoin");
        // A table of orders joined by foreign key with the shops, and a join of two tables.
        // Only orders whose key comes once: an answer about an order that has changed meanwhile is dropped, which depends on time.
        KTable<String, String> latest = orders.filter((k, o) -> k.startsWith("once")).toTable(store("latest"));
        out(latest.join(shops, StreamsMatrix::shop, (o, s) -> o + " in " + s, store("foreign")).toStream(), "foreign");
        out(users.outerJoin(shops, (u, s) -> u + "|" + s, store("both")).toStream(), "tables");
    }

    private void windows(KStream<String, String> orders) {
        var grouped = orders.groupBy((k, o) -> shop(o), Grouped.with("by-shop", TEXT, TEXT));
        out(grouped.windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, MINUTE)).count(Materialized.as("tumbling"))
            .toStream().map((w, n) -> KeyValue.pair(window(w), "" + n)), "tumbling");
        out(grouped.windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, MINUTE).advanceBy(Duration.ofSeconds(30)))
            .aggregate(() -> 0L, (k, o, sum) -> sum + amount(o), Materialized.with(TEXT, Serdes.Long()))
            .toStream().map((w, n) -> KeyValue.pair(window(w), "" + n)), "hopping");
        out(grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(20), MINUTE)).count(Materialized.as("sliding"))
            .toStream().map((w, n) -> KeyValue.pair(window(w), "" + n)), "sliding");
        out(grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(15), MINUTE)).count(Materialized.as("session"))
            .toStream().map((w, n) -> KeyValue.pair(window(w), "" + n)), "session");
        out(grouped.windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, MINUTE)).count(Materialized.as("final"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("final-buffer"))
            .toStream().map((w, n) -> KeyValue.pair(window(w), "" + n)), "suppressed");
        out(grouped.reduce((a, b) -> "-;-;" + (amount(a) + amount(b)), store("reduced")).toStream(), "reduced");
        out(orders.groupByKey(Grouped.with(TEXT, TEXT)).aggregate(() -> "", (k, o, all) -> all.isEmpty() ? o : all + "," + o, store("gathered"))
            .toStream(), "gathered");
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[2]);
        p.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, args[3]);
        p.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        p.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        // Unjoined records of left and outer joins come out when their window closes, not once a second.
        p.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        p.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        p.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        p.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1000");
        p.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "20000");
        StreamsMatrix matrix = new StreamsMatrix(args[1]);
        KStream<String, String> orders = matrix.stream("orders");
        matrix.joins(orders);
        matrix.windows(orders);
        KafkaStreams streams = new KafkaStreams(matrix.builder.build(p), p);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING || now == KafkaStreams.State.ERROR) {
                System.out.println(now);
            }
        });
        streams.start();
        CountDownLatch ended = new CountDownLatch(1);
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException e) {
                System.out.println("standard input: " + e);
            }
            ended.countDown();
        });
        watch.setDaemon(true);
        watch.start();
        ended.await();
        streams.close(Duration.ofSeconds(20));
        System.exit(0);
    }
}

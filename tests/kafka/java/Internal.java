import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Internal ADDRESS TOPIC: makes a broker fill its internal topics. Transactions end both ways, and
 * groups of each protocol read the topic's one partition and commit.
 */
public class Internal {
    private static String address;
    private static String topic;

    public static void main(String[] arguments) {
        address = arguments[0];
        topic = arguments[1];
        produce("first", true);
        produce("second", false);
        consume("classic");
        consume("consumer");
        share();
    }

    private static Properties properties(String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        for (int i = 0; i < pairs.length; i += 2) properties.put(pairs[i], pairs[i + 1]);
        return properties;
    }

    private static void produce(String id, boolean commit) {
        Properties properties = properties("transactional.id", id, "max.block.ms", "30000");
        var bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int n = 0; n < 5; n++) {
                producer.send(new ProducerRecord<>(topic, 0, null, ("value " + n).getBytes()));
            }
            if (commit) producer.commitTransaction(); else producer.abortTransaction();
        }
    }

    private static void consume(String protocol) {
        Properties properties = properties("group.protocol", protocol, "group.id", "by " + protocol,
            "client.id", "client \"é\"", "auto.offset.reset", "earliest", "client.rack", "rack",
            "enable.auto.commit", "false");
        var bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            ConsumerRecords<byte[], byte[]> records = ConsumerRecords.empty();
            for (int n = 0; n < 100 && records.isEmpty(); n++) {
                records = consumer.poll(Duration.ofMillis(200));
            }
            if (records.isEmpty()) throw new IllegalStateException("nothing for " + protocol);
            consumer.commitSync();
        }
    }

    private static void share() {
        Properties properties = properties("group.id", "sharing");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(properties, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            // A new share group begins at the end of the topic, so something must come.
            for (int n = 0; n < 100; n++) {
                if (n % 10 == 5) produce("third", true);
                if (!consumer.poll(Duration.ofMillis(200)).isEmpty()) break;
            }
            consumer.commitSync();
        }
    }
}

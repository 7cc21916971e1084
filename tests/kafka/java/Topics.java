import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * Topics BOOTSTRAP WORD...: creates topics. A word is NAME/PARTITIONS or
 * NAME/PARTITIONS/PROPERTY=VALUE,PROPERTY=VALUE.
 */
public class Topics {
    public static void main(String[] args) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (int i = 1; i < args.length; i++) {
            String[] word = args[i].split("/", 3);
            Map<String, String> config = new HashMap<>();
            String[] properties = word.length < 3 ? new String[0] : word[2].split(",");
            for (String property : properties) {
                int equals = property.indexOf('=');
                config.put(property.substring(0, equals), property.substring(equals + 1));
            }
            topics.add(new NewTopic(word[0], Integer.parseInt(word[1]), (short) 1).configs(config));
        }
        Map<String, Object> client = Map.of("bootstrap.servers", args[0]);
        try (Admin admin = Admin.create(client)) {
            admin.createTopics(topics).all().get();
        }
    }
}

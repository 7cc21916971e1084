import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.HashMap;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Recover: each line of standard input names a partition's directory, which is opened through
 * Kafka's own UnifiedLog as after a crash with nothing flushed. Prints "recovered", the nanoseconds
 * that it took, and the log end offset. The files are left as the recovery leaves them.
 */
public class Recover {
    public static void main(String[] args) throws Exception {
        LogConfig config = Replay.config(new HashMap<>());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            long start = System.nanoTime();
            UnifiedLog log = Replay.open(new File(line), config, 0, 0, false);
            long taken = System.nanoTime() - start;
            System.out.println("recovered " + taken + " " + log.logEndOffset());
            log.close();
        }
    }
}

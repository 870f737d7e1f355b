import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.List;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/** One OpenSearch node on loopback: OsNode HTTP_PORT TRANSPORT_PORT DIR [SETTING=VALUE...] */
public class OsNode {
    static class Alone extends Node {
        Alone(Environment environment, Collection<Class<? extends Plugin>> plugins) {
            super(environment, plugins, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path dir = Paths.get(arguments[2]).toAbsolutePath();
        Files.createDirectories(dir.resolve("config"));
        Settings.Builder settings = Settings.builder()
            .put("path.home", dir).put("path.data", dir.resolve("data")).put("path.logs", dir.resolve("logs"))
            .put("cluster.name", "decklog-test").put("node.name", "n1")
            .put("network.host", "127.0.0.1").put("http.port", arguments[0]).put("transport.port", arguments[1])
            .put("http.type", "netty4").put("transport.type", "netty4")
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false);
        for (int at = 3; at < arguments.length; at++) {
            String[] setting = arguments[at].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Environment environment = new Environment(settings.build(), dir.resolve("config"));
        Node node = new Alone(environment, List.of(org.opensearch.transport.Netty4Plugin.class));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.close();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        node.start();
        System.out.println("started");
        Thread.currentThread().join();
    }
}

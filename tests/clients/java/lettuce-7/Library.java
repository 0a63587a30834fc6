import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.util.List;

/** Lettuce with nothing set but where to begin. */
final class Library {
  static Client connect(List<String> seeds) {
    List<RedisURI> nodes = seeds.stream().map(each -> RedisURI.create("redis://" + each)).toList();
    RedisAdvancedClusterCommands<String, String> commands =
        RedisClusterClient.create(nodes).connect().sync();
    return new Client() {
      @Override
      public void set(String key, String value) {
        commands.set(key, value);
      }

      @Override
      public String get(String key) {
        return commands.get(key);
      }
    };
  }
}

import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Grants and takes rights, as kafka-acls.sh does, without starting anew for each: `+|- USER TYPE NAME OPERATION` a line. */
class Acls {
    public static void main(String[] arguments) throws Exception {
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", arguments[0]))) {
            for (var lines = new Scanner(System.in); lines.hasNextLine();) {
                var words = lines.nextLine().split(" ");
                var resource = new ResourcePattern(ResourceType.valueOf(words[2]), words[3], PatternType.LITERAL);
                var operation = AclOperation.valueOf(words[4]);
                var entry = new AccessControlEntry("User:" + words[1], "*", operation, AclPermissionType.ALLOW);
                var binding = new AclBinding(resource, entry);
                if (words[0].equals("+")) {
                    admin.createAcls(List.of(binding)).all().get();
                } else {
                    admin.deleteAcls(List.of(binding.toFilter())).all().get();
                }
                System.out.println("done");
            }
        }
    }
}

import java.util.List;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.EventsApi;
import org.openapitools.client.model.Append;
import org.openapitools.client.model.Event;
import org.openapitools.client.model.Query;
import org.openapitools.client.model.Read;

/** Appends an event to a log, and prints the data of all that is read. */
public final class Program {
    public static void main(String[] arguments) throws Exception {
        var events = new EventsApi(new ApiClient().setBasePath(arguments[0]));
        events.append(arguments[1], new Append().events(List.of(new Event().type("A").data("by okhttp"))), null, null, null);
        var read = events.read(arguments[1], new Read().query(new Query().all(true)));
        for (var each : read) {
            System.out.println(each.getSequenceNumber() + " " + each.getEvent().getData());
        }
        System.exit(0); // okhttp's threads go on for a minute
    }
}

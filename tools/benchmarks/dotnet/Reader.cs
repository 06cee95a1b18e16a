// What tools/benchmarks/reader.py does, with Microsoft's change feed processor: it reads the container several times,
// each time with leases of its own, and prints changes a second, counted from the end of the first page, a line each.
// The handler gets any JSON document, as ours does: JObject is the form of the SDK's own serializer for that.

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.Threading;
using System.Threading.Tasks;
using Microsoft.Azure.Cosmos;
using Newtonsoft.Json.Linq;

public static class Reader
{
    public static async Task Main(string[] arguments)
    {
        string database = arguments[0];
        int page = int.Parse(arguments[1]), changes = int.Parse(arguments[2]), readings = int.Parse(arguments[3]);
        var options = new CosmosClientOptions { ConnectionMode = ConnectionMode.Gateway, LimitToEndpoint = true };
        using var client = new CosmosClient(Environment.GetEnvironmentVariable("COSMOS"), options);
        Container monitored = client.GetContainer(database, "contacts");
        Container leases = client.GetContainer(database, "leases");
        for (int reading = 0; reading < readings; reading++)
        {
            double rate = await Rate(monitored, leases, page, changes);
            Console.WriteLine(rate.ToString("F0", CultureInfo.InvariantCulture));
        }
    }

    private static async Task<double> Rate(Container monitored, Container leases, int page, int changes)
    {
        var last = new TaskCompletionSource<long>();
        int handled = 0, first = 0;
        long began = 0;

        Task Handle(ChangeFeedProcessorContext context, IReadOnlyCollection<JObject> items, CancellationToken cancelled)
        {
            handled += items.Count;
            if (began == 0)
            {
                began = Stopwatch.GetTimestamp();
                first = handled;
            }
            if (handled >= changes)
            {
                last.TrySetResult(Stopwatch.GetTimestamp());
            }
            return Task.CompletedTask;
        }

        ChangeFeedProcessor processor = monitored
            .GetChangeFeedProcessorBuilder<JObject>(Guid.NewGuid().ToString("N"), Handle)
            .WithInstanceName("reader")
            .WithLeaseContainer(leases)
            .WithStartTime(DateTime.MinValue.ToUniversalTime())
            .WithMaxItems(page)
            .WithPollInterval(TimeSpan.FromMilliseconds(100))
            .Build();
        await processor.StartAsync();
        long ended = await last.Task;
        await processor.StopAsync();
        return (handled - first) * (double)Stopwatch.Frequency / (ended - began);
    }
}

"""What a SuperNode does: train on its share of the data."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coterie.flower import SealingMod, TrustServerForIdentities
from digits_app.task import load, train

mod = SealingMod(
    least_privacy=4,
    protocols={"open"},
    verify_member=TrustServerForIdentities(),
    simulated_devices="~/coterie-digits/devices",
)
app = ClientApp(mods=[mod])


@app.train()
def train_model(msg: Message, context: Context) -> Message:
    """Return the model trained on this node's examples."""
    images, labels = load("train", context.node_config["partition-id"], context.node_config["num-partitions"])
    model = train(msg.content["arrays"].to_numpy_ndarrays(), images, labels)
    records = {"arrays": ArrayRecord(model), "metrics": MetricRecord({"num-examples": len(labels)})}
    return Message(RecordDict(records), reply_to=msg)

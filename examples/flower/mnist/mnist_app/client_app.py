"""What a SuperNode does: train and evaluate on its share of the data."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coterie.flower import SealingMod, TrustServerForIdentities
from mnist_app.task import load, make_net, test, train

mod = SealingMod(
    least_privacy=4, verify_member=TrustServerForIdentities(), simulated_devices="~/coterie-mnist/devices"
)
app = ClientApp(mods=[mod])


@app.train()
def train_net(msg: Message, context: Context) -> Message:
    """Return the model trained on this node's examples."""
    net = make_net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    images, labels = load("train", context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = train(net, images, labels, msg.content["config"]["learning-rate"])
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate_net(msg: Message, context: Context) -> Message:
    """Return how well the global model does on this node's examples."""
    net = make_net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    images, labels = load("t10k", context.node_config["partition-id"], context.node_config["num-partitions"])
    metrics = MetricRecord({**test(net, images, labels), "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)

"""w + 1 in Flower's message API."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    content = RecordDict(
        {
            "arrays": ArrayRecord([weights + 1]),
            "metrics": MetricRecord({"num-examples": 10}),
        }
    )
    return Message(content=content, reply_to=message)

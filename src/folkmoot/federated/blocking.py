"""The same functions without `async`: what `import folkmoot` offers."""

from folkmoot.federated import local
from folkmoot.federated.coordinator import server
from folkmoot.host.blocking import blocking, blocking_context

serve_federation = blocking_context(server.serving)
train_federation = blocking(local.train_federation)

"""Runs migrations on the connection that the gateway hands over, inside its transaction."""

from alembic import context

from gateway.store.tables import meta

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=meta, render_as_batch=True, transactional_ddl=False)
context.run_migrations()

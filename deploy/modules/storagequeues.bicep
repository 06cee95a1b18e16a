// The queues of TRANSPORT=storagequeue: one for each subscriber, and one for what it could not take.
param accountName string
param senders string[]
param receivers string[]

@description('The app\'s own subscriptions.')
param ownQueues string[]

@description('Those of other services: [{ name, principalId }].')
param otherQueues array

var queueDataMessageSender = 'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a'
var queueDataReader = '19e7f393-937e-4f77-808e-94535e297925'
var queueDataContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
var names = concat(ownQueues, map(otherQueues, each => each.name))

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: accountName
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in names: {
  parent: queueService
  name: name
}]

resource poisonQueues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in names: {
  parent: queueService
  name: '${name}-poison'
}]

// On the account: the relay sends to all queues, and looks whether they are there.
resource sending 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in senders: {
  name: guid(account.id, principalId, queueDataMessageSender)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataMessageSender)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

resource looking 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principalId in senders: {
  name: guid(account.id, principalId, queueDataReader)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataReader)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

resource receiving 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers) * length(ownQueues)): {
  name: guid(account.id, ownQueues[index % length(ownQueues)], receivers[index / length(ownQueues)], queueDataContributor)
  scope: queues[index % length(ownQueues)]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: receivers[index / length(ownQueues)]
    principalType: 'ServicePrincipal'
  }
}]

resource receivingPoison 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers) * length(ownQueues)): {
  name: guid(account.id, ownQueues[index % length(ownQueues)], receivers[index / length(ownQueues)], queueDataContributor, 'poison')
  scope: poisonQueues[index % length(ownQueues)]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: receivers[index / length(ownQueues)]
    principalType: 'ServicePrincipal'
  }
}]

resource others 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(otherQueues)): {
  name: guid(account.id, otherQueues[index].name, otherQueues[index].principalId, queueDataContributor)
  scope: queues[length(ownQueues) + index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: otherQueues[index].principalId
    principalType: 'ServicePrincipal'
  }
}]

resource othersPoison 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(otherQueues)): {
  name: guid(account.id, otherQueues[index].name, otherQueues[index].principalId, queueDataContributor, 'poison')
  scope: poisonQueues[length(ownQueues) + index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    principalId: otherQueues[index].principalId
    principalType: 'ServicePrincipal'
  }
}]
